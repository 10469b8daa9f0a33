"""The lab: worlds that drift, the paper's data, and the experiments played on them."""
