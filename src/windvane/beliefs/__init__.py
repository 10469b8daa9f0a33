"""What a policy has learned: one room for each kind of belief.

Each belief fulfils the same contract, in the files that its room has for it; `policy_belief` has it
as the class of which a `Policy` holds one:

- layout: settings, counters and sums as arrays that compiled code takes as one argument
- learning: "learn one observation" is written once. With the fade f and the weight w that the
  memory gives, every sum becomes f·sum + w·(what the observation adds), the ridge λ never fades,
  and the error of prediction is taken before the observation is added. A refusal is a code, and
  then nothing has changed
- choosing: scores of arms from the estimate θ̂ and from widths ‖x‖_{V⁻¹}; ties and the floor are
  those of `full.choosing`, and all randomness is a function of key and round
- propensities: the probability of each arm, of the same numbers with which `choose` decides
- saved state: arrays and counters, restored bit by bit or refused
- what it supports: an entry of a registry says it (`MemoryKind`, `ExplorationKind`); nothing is
  supported by default

| room     | sums                          | learns one observation in  |
|----------|-------------------------------|----------------------------|
| full     | d × d matrices                | `learning.add_observation` |
| diagonal | two numbers for each feature  | `kernels.learn_entries`    |
| bank     | the same for several memories | `learning.learn_columns`   |
| glm      | the observations themselves   | `kernels.learn`            |

`adaptive` has policies that choose among several beliefs.
"""
