"""The full belief: sums over d × d matrices, in compiled code.

- `layout`: the settings and counters as compiled code reads them; `belief`: the sums as a value,
  and both ways between the two
- `block`: the parts of a belief in one array; `linalg`: linear algebra
- `learning`, `parts`, `noise`: what is learned; `choosing`, `widths`, `propensities`: explorations
- `large`: learning and choosing above LARGE dimensions
"""
