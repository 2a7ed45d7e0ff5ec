"""Pictures: from the bytes of a file to the arrays that a vision tower reads, and their place in a prompt."""
