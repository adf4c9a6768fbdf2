"""One file a question: purpose, command, machine and last result stand in its docstring."""
