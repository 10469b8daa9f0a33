"""Features: from JSON to vectors."""
