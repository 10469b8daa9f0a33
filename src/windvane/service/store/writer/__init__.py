"""The writer: operations as data, written in group commits by a process of its own."""
