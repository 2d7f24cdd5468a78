"""On a terminal `run MODEL` holds a conversation: loading shows a line that is wiped before text comes, an empty line is
skipped, what was said is remembered until /clear, Ctrl-C cancels the answer and not the conversation, Ctrl-D ends it."""

import errno
import os
import pty
import re
import select
import time
from harness import Daemon, check, eventually


class Terminal:
    """A child whose terminal is this object."""

    def __init__(self, command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, {"PATH": os.environ["PATH"], "TERM": "xterm"})
        self.seen = ""

    def read(self):
        """False once the child has closed its side."""
        if not select.select([self.fd], [], [], 0.1)[0]:
            return True
        try:
            self.seen += os.read(self.fd, 1 << 16).decode(errors="replace")
        except OSError as error:
            check(error.errno == errno.EIO, error)
            return False
        return True

    def until(self, pattern, what, seconds=30):
        """Reads until `pattern` stands in what has come since the last call, and returns that."""
        end = time.monotonic() + seconds
        while not (match := re.search(pattern, self.seen)):
            check(self.read() and time.monotonic() < end, "never saw", what, "in", repr(self.seen[-800:]))
        head, self.seen = self.seen[:match.end()], self.seen[match.end():]
        return head

    def type(self, text):
        os.write(self.fd, text.encode())

    def exit_code(self):
        eventually(lambda: not self.read(), "the terminal to be closed")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


PROMPT = r"(?:^|\n)> $"


def answer(terminal, text):
    terminal.type(text + "\r")
    return terminal.until(PROMPT, "the next prompt")


def prompt_tokens(daemon):
    """Of the answer under way, once its prompt was read."""
    def look():
        return next((info["prompt_tokens"] for info in daemon.json("ps", "--requests")["requests"]
                     if info["model"] == "slow" and info["produced"] > 0), 0)
    return eventually(look, "the answer to begin", seconds=30)


def cancelled_turn(daemon, terminal, text):
    """Asks, waits for the answer's first tokens, presses Ctrl-C, and returns the size of the prompt that was."""
    terminal.type(text + "\r")
    size = prompt_tokens(daemon)
    terminal.type("\x03")
    seen = terminal.until(PROMPT, "a prompt after Ctrl-C")
    check("cancelling" in seen and "cancelled" in seen, repr(seen))
    return size


with Daemon() as daemon:
    chat = Terminal(daemon.command("run", "tale", "--temperature", "0", "--max-tokens", "20"))
    chat.until("Ctrl-D ends", "the greeting")
    chat.until(PROMPT, "the first prompt")
    first = answer(chat, "What color is the sky?")
    check("tale: loading" in first, "no progress line:", repr(first))
    line_at, wiped_at = first.rindex("tale: loading"), first.rindex("\r\x1b[K")
    check(wiped_at > line_at, "the progress line was left standing:", repr(first))
    text = first[wiped_at + 4:].strip("\r\n> ")
    check(len(text) > 1 and "loading" not in text, "no answer:", repr(first))
    chat.type("\r")
    check(chat.until(PROMPT, "a prompt after an empty line").strip("\r\n> ") == "", "an empty line was answered")
    answer(chat, "/clear")
    again = answer(chat, "What color is the sky?")
    check("loading" not in again, "it loaded again:", repr(again))
    check(again.split("?", 1)[1].strip("\r\n> ") == text, "after /clear the same question got", repr(again), "not", text)
    chat.type("\x04")
    check(chat.exit_code() == 0, "Ctrl-D")

    chat = Terminal(daemon.command("run", "slow", "--ignore-eos", "--max-tokens", "2000"))
    chat.until(PROMPT, "the first prompt")
    alone = cancelled_turn(daemon, chat, "Tell me a story.")
    remembered = cancelled_turn(daemon, chat, "Tell me a story.")
    check(remembered > 2 * alone - 10 and remembered > alone + 5, "nothing was remembered:", alone, remembered)
    answer(chat, "/clear")
    check(cancelled_turn(daemon, chat, "Tell me a story.") == alone, "/clear forgot nothing")
    chat.type("\x04")
    check(chat.exit_code() == 0, "Ctrl-D")
