"""What the files in deploy/ say: the steps of the container, the variables, the volumes."""

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


class Instruction(NamedTuple):
    """An instruction of a container file."""

    name: str
    text: str


class Container(NamedTuple):
    """The instructions of the last stage of a container file, and of the stages before it."""

    last: list[Instruction]
    before: list[Instruction]

    def find(self, name: str) -> str:
        """The text of the only instruction of this name in the last stage."""
        [text] = [each.text for each in self.last if each.name == name]
        return text

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the container sets."""
        words = [
            word for each in self.last if each.name == "ENV" for word in shlex.split(each.text)
        ]
        return dict(word.split("=", 1) for word in words)

    @property
    def command(self) -> list[str]:
        """The words with which the container starts."""
        words: list[str] = json.loads(self.find("ENTRYPOINT")) + json.loads(self.find("CMD"))
        return words

    @property
    def health_check(self) -> list[str]:
        """The words of the command that says whether the container is healthy."""
        words: list[str] = json.loads(self.find("HEALTHCHECK").split(" CMD ", 1)[1])
        return words


def read_container() -> Container:
    """Read deploy/Containerfile."""
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Containerfile").read_text("utf-8"), flags=re.M)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    instructions = [Instruction(*line.split(None, 1)) for line in lines if line.strip()]
    places = [place for place, each in enumerate(instructions) if each.name == "FROM"]
    return Container(instructions[places[-1] :], instructions[: places[-1]])
