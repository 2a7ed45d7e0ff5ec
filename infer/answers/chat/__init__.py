"""What a chat model writes: thoughts, text, and calls of tools, in the form that its own template has for them."""
