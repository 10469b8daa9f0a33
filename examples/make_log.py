"""Write a log to evaluate policies on: a news site whose visitors change their taste half-way.

The site showed its editors' favourite most of the time, and chose at random in two visits of five.

    python examples/make_log.py visits.dsjson 8000
"""

import json
import random
import sys
from datetime import UTC, datetime, timedelta

FIRST = datetime(2026, 3, 1, tzinfo=UTC)
ARTICLES = ("politics", "sports", "music", "science")
EXPLORED = 0.4


def click_chance(device: str, article: str, has_changed: bool) -> float:
    """Phones like sports and desktops politics; after the change, music and science."""
    liked = {"phone": ("sports", "music"), "desktop": ("politics", "science")}[device]
    return 0.6 if article == liked[has_changed] else 0.2


def main(path: str, visits: int) -> None:
    """Write one line a visit, in the format dsjson."""
    rng = random.Random(1)
    with open(path, "w") as file:
        for visit in range(visits):
            device = rng.choice(("phone", "desktop"))
            favourite = 1 if device == "phone" else 0
            chances = [EXPLORED / 4 + (1 - EXPLORED) * (k == favourite) for k in range(4)]
            chosen = rng.choices(range(4), chances)[0]
            is_click = rng.random() < click_chance(device, ARTICLES[chosen], visit >= visits // 2)
            order = [chosen, *(k for k in range(4) if k != chosen)]
            line = {
                "_label_cost": -float(is_click),
                "_label_probability": chances[chosen],
                "_label_Action": chosen + 1,
                "_labelIndex": chosen,
                "Timestamp": (FIRST + timedelta(minutes=3 * visit)).isoformat(),
                "EventId": f"visit-{visit}",
                "a": [k + 1 for k in order],
                "c": {
                    "user": {"device": device},
                    "_multi": [{"_tag": name, "j": {"topic": name}} for name in ARTICLES],
                },
                "p": [chances[k] for k in order],
            }
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
