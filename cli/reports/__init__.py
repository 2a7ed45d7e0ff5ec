"""What was measured: tables, pictures, memory."""
