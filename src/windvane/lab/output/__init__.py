"""What a study writes and draws."""
