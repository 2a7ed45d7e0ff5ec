"""What a person sees while a model answers, and how messages are typed."""
