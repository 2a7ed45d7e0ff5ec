"""What a chat model writes: thoughts, text and tool calls, in the format of its own template."""
