"""Decide over HTTP: visitors of a news site, their clicks, and what the log says afterwards.

python examples/client.py http://127.0.0.1:8787
"""

import random
import sys

from windvane.client import Client

STORIES = [{"id": "news", "topic": "politics"}, {"id": "match", "topic": "sports"}]


def main() -> None:
    """Play 200 visitors against the servers on the command line."""
    draw = random.Random(1)
    with Client(sys.argv[1:], rank_timeout=5.0) as client:
        clicks = []
        for _ in range(200):
            device = draw.choice(["phone", "desktop"])
            decision = client.rank({"device": device}, STORIES)
            is_liked = (decision.action == "match") == (device == "phone")
            clicks.append((decision, 1.0 if is_liked else 0.0))
            if len(clicks) == 20:  # now and then, as a pipeline has them
                client.rewards(clicks)
                clicks = []
        newest = [decision for decision in client.decisions() if decision.is_final][-50:]
    rewards = [decision.reward for decision in newest if decision.reward is not None]
    print(f"{len(rewards)} decisions, good: {sum(rewards) > 0.8 * len(rewards)}")


if __name__ == "__main__":
    main()
