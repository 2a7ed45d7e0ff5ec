"""Options that several commands have, and what becomes of them."""
