"""Vision towers: from patches of pictures to the rows that a text model reads in place of embeddings."""
