"""The full belief: sums over d × d matrices, in compiled code.

- `layout`: the settings and counters as compiled code reads them; `belief`: the sums as a value,
  and both ways between the two
- `block`: the parts of a belief in one array; `linalg`: linear algebra
- `learning`, and `memories` for what single memories keep beside the sums
- `choosing`, `widths`, `sampling`, `propensities`: explorations
- `large`: learning and choosing above LARGE dimensions
"""
