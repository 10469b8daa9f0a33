"""Files of the log: the data directory, locks, backups, copies and exports."""
