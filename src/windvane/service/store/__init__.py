"""The durable log."""
