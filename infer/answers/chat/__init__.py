"""The output of chat models: thoughts, text and tool calls, in the format of the model's template."""
