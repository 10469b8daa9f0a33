"""What a study returns, writes and draws: frames, files, figures."""
