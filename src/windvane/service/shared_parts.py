"""What the workers of a service share: a socket that listens, a writer process, and a directory."""

from pathlib import Path

import msgspec


class SharedParts(msgspec.Struct, frozen=True):
    """What the workers of a service share."""

    directory: str  # for the socket of the writer process, and for the counts of each worker
    listening: int  # number of the socket that listens
    number: int = 0  # of this worker

    @property
    def writer_socket(self) -> str:
        """The path of the socket of the writer process."""
        return str(Path(self.directory) / "writer")

    def locate_counts(self, number: int) -> Path:
        """The path of the file in which a worker leaves its counts of requests for the others."""
        return Path(self.directory) / f"requests-{number}"

    def list_counts(self) -> list[Path]:
        """The paths of the counts that the other workers have left."""
        own = self.locate_counts(self.number)
        return [path for path in Path(self.directory).glob("requests-*") if path != own]
