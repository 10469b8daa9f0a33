"""A feature flag whose value is learned: OpenFeature in front of a loop.

python examples/feature_flag.py http://127.0.0.1:8787
"""

import random
import sys

from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from openfeature.track import TrackingEventDetails

from windvane.client import Client
from windvane.integrations.openfeature import WindvaneProvider

BANNERS = [{"id": "winter"}, {"id": "summer", "colour": "yellow"}]


def main() -> None:
    """Show 200 visitors a banner, and track who clicks."""
    draw = random.Random(1)
    provider = WindvaneProvider(
        Client(sys.argv[1], rank_timeout=5.0),
        flags={"banner": BANNERS},  # a flag, its loop and its actions
        rewards={"click": "banner"},  # a tracked event, and the flag that it rewards
    )
    api.set_provider_and_wait(provider)
    flags = api.get_client()
    right = []
    for visitor in range(200):
        country = draw.choice(["Norway", "Chile"])
        context = EvaluationContext(f"visitor {visitor}", {"country": country})
        details = flags.get_string_details("banner", "winter", context)
        is_liked = (details.value == "summer") == (country == "Chile")
        flags.track("click", context, TrackingEventDetails(1.0 if is_liked else 0.0))
        right.append(is_liked)
    print(sorted(details.flag_metadata))
    print(f"the last 50 are good: {sum(right[-50:]) > 40}")
    api.shutdown()


if __name__ == "__main__":
    main()
