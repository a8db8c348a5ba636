"""What ssh runs to ask for a password, a code or a yes: passes the question on to the process that started ssh, and the
answer back. A process of its own, started with `-I -S`: the standard library alone.

Exit code 0 and a line with the answer, 1 for none: what ssh expects of `SSH_ASKPASS`.
"""

import json
import os
import socket
import sys

SOCKET = "DEVEXPLORER_ASKPASS"
"""Names the variable with the socket where questions are answered."""


def main() -> int:
    """Ask the one question of the command line."""
    question = {"text": " ".join(sys.argv[1:]), "prompt": os.environ.get("SSH_ASKPASS_PROMPT", "")}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        try:
            door.connect(os.environ[SOCKET])
            door.sendall(json.dumps(question).encode("ascii") + b"\n")
            with door.makefile("rb") as answers:
                answer = answers.readline()
        except (OSError, KeyError):  # nobody waits for ssh any more
            return 1
    if not answer.endswith(b"\n"):
        return 1
    os.write(1, answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
