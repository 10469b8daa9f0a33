"""Report: an evaluation as tables, sentences and a figure."""
