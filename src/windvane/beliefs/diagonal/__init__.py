"""The diagonal belief: any number of sparse features, and no correlations between their weights."""
