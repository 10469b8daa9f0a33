"""What the command line shows: messages and progress (`console`), `tables` and `figures`."""
