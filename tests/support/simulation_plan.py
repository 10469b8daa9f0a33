"""The plan that the tests of the lab simulate, by its functions and by its commands."""

PLAN = """
replications = 6
seed = 4
[[policies]]
name = "D-LinTS"
[[policies]]
name = "mine"
memory = "window(50)"
exploration = "greedy()"
[worlds.abrupt]
dim = 4
arms = 6
horizon = 400
drift = "abrupt([200], flip=0.5)"
[worlds.still]
dim = 3
arms = 5
horizon = 300
actions = "fixed()"
reward = "bernoulli()"
"""
