"""What the service shows about its loops."""
