"""The full belief: sums over d × d matrices, in compiled code.

- `layout`: the settings and counters as compiled code reads them; `belief`: the sums as a value;
  `belief_arrays`: both ways between the two
- `block`: the parts of a belief in one array; `linalg`, `cholesky`: linear algebra
- `learning`, and `counters`, `window`, `kalman` for memories with numbers of their own
- `choosing`, `widths`, `sampling`, `propensities`: explorations
- `large`: learning and choosing above LARGE dimensions
"""
