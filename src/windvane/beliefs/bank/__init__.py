"""The learner: it ranks actions by their features, and learns from rewards without any setting."""
