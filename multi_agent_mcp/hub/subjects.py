"""Names on the hub: kinds of values, streams and subjects, and the account of a machine (docs/protocol.md, Several
machines)."""

from __future__ import annotations

import ipaddress
import socket
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import psutil

from multi_agent_mcp import features
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.features.ours import OURS
from multi_agent_mcp.store.shared_collection import LINE

if TYPE_CHECKING:
    from multi_agent_mcp.store.workspace import Workspace

# The addresses on which a hub listens, and the URLs at which it is reached.

PORT = 4222


def parse_address(listen: str) -> tuple[str, int]:
    """Parses `HOST:PORT`, `HOST` or `PORT`. Raises `InvalidArguments`."""
    host, _, port = (
        listen.rpartition(":") if ":" in listen else ("", "", listen) if listen.isdecimal() else (listen, "", "")
    )
    if port and not (port.isdecimal() and 0 < int(port) < 65536):
        raise InvalidArguments("bad_listen", value=f"{listen!r:.60}")
    try:
        host.encode("idna")  # as getaddrinfo(3) is called
    except UnicodeError as error:
        raise InvalidArguments("bad_listen", value=f"{listen!r:.60}") from error
    return host.strip("[]") or "0.0.0.0", int(port or PORT)  # noqa: S104 - off loopback there is TLS


def is_any(host: str) -> bool:
    return host in ("0.0.0.0", "::")  # noqa: S104 - it is compared


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def own_addresses() -> list[str]:
    """Returns this machine's addresses in its networks, that of its way out first, and its name."""
    found = []
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # RFC 5737; nothing is sent
        found.append(probe.getsockname()[0])
    known = (item for items in psutil.net_if_addrs().values() for item in items)
    addresses = (item.address for item in known if item.family in (socket.AF_INET, socket.AF_INET6))
    found += [each for each in addresses if "%" not in each and not is_loopback(each)]  # those with a zone are local
    return list(dict.fromkeys([*found, socket.gethostname()]))


def hub_url(host: str, port: int) -> str:
    return f"nats://[{host}]:{port}" if ":" in host else f"nats://{host}:{port}"


def require_protected(urls: Sequence[str]) -> None:
    """Raises `InvalidArguments` for a hub on another machine without TLS, and for an invalid URL."""
    for url in urls:
        try:
            parts = urlsplit(url)
            is_hub = parts.scheme in ("nats", "tls") and parts.hostname is not None and parts.port != 0
        except ValueError:
            is_hub = False
        if not is_hub:
            raise InvalidArguments("bad_hub", url=f"{url!r:.80}")
        if parts.scheme == "nats" and not is_loopback(parts.hostname or ""):
            raise InvalidArguments("hub_without_tls", url=url)


# The kinds of entities that machines exchange, as the features say (docs/machines.md, What travels). Mail,
# notifications and their marks, logs, the Owner's wait, agents' records and settings are no entities with a file of
# their own, or are no one's alone; `hub.publishing` and `hub.applying` know them by name.


class Rule(Enum):
    """How the entities of a kind travel."""

    SHARED = "shared"
    """Any machine changes them, by compare-and-set: a `SharedCollection`, also written by a person."""
    STATE = "state"
    """Their agent's home changes them, and their newest state travels: a `Collection` by `agent_id`."""
    COPY = "copy"
    """Their agent's home writes them once, `{directory}/{partition}/{name}.md` with an `agent_id` in the header, and
    their bytes travel."""


class TravellingKind(NamedTuple):
    """`name` is the prefix of their ids and their kind in subjects, `directory` where their files are."""

    name: str
    directory: str
    rule: Rule
    of_feature: features.Kind

    def collection(self, workspace: Workspace) -> Any:
        return workspace.collection(self.of_feature)


KINDS = tuple(
    TravellingKind(kind.prefix, kind.directory, Rule(kind.travels), kind)
    for feature in OURS
    for kind in feature.kinds
    if kind.travels
)
"""Every kind of entity, whatever is off in a session: what the hub's streams take is the same for all."""

WITHOUT_FILES = tuple(kind.claims for feature in OURS for kind in feature.kinds if kind.claims)
"""The kinds of shared values that only order changes: no machine has a file of them."""

BY_NAME: Mapping[str, TravellingKind] = {kind.name: kind for kind in KINDS}
BY_DIRECTORY: Mapping[str, TravellingKind] = {kind.directory: kind for kind in KINDS}


def directories(*rules: Rule) -> frozenset[str]:
    """Returns the directories of the kinds that travel by one of these rules."""
    return frozenset(kind.directory for kind in KINDS if kind.rule in rules)


# Streams and subjects.

MESSAGE, NOTIFICATION, READ, SEEN, WAIT, EDITS = "msg", "ntf", "read", "seen", "wait", "edits"
"""The kinds of values that one machine writes, besides `KINDS`: mail and notifications, marks `read_at`, the Owner's
wait, an agent's last edits."""
MAIL = ("ipc", "notifications")
"""The directories of messages and of notifications."""
MARKS = {MESSAGE: READ, NOTIFICATION: SEEN}
AGENT, SETTINGS, CONVERSATION = "agent", "settings", "cnv"
"""The kinds of values that all machines write, besides `KINDS`, in the order of the authority."""
SHARED_KINDS = (AGENT, LINE, *WITHOUT_FILES, *(kind.name for kind in KINDS if kind.rule is Rule.SHARED))
OWN_KINDS = (*MARKS, *MARKS.values(), WAIT, EDITS, *(kind.name for kind in KINDS if kind.rule is not Rule.SHARED))
REFERRED = (AGENT, CONVERSATION)
"""The kinds of values to which other values refer."""
KNOWN_MAX = 16_384
"""The number of parsed subjects in the cache: that of a value is parsed several times in a row."""
LOG, AUDIT = "exec", "audit"
"""The kinds of append-only files, in the stream of logs."""


class Own(NamedTuple):
    """The parts of the subject of a value that one machine writes: `own.{lane}.{machine}.{kind}.{owner}.{name}`."""

    machine: str
    kind: str
    owner: str
    name: str


LANES = tuple(f"{number:02}" for number in range(8))
"""The lanes of the hub, one for each machine; from the ninth machine on two share one. A lane has a stream for the
values that its machine writes and one for its logs, so that what one machine floods delays no other one's. They exist
from the beginning, as what an account imports must not change when machines come."""


def lane_for(machine: str, taken: Iterable[str] = ()) -> str:
    """Returns the lane for a machine's name, another one if that is taken and one is free."""
    first = zlib.crc32(machine.encode()) % len(LANES)
    return next((lane for lane in (*LANES[first:], *LANES[:first]) if lane not in set(taken)), LANES[first])


class Names:
    """The names of one session, made from its uuid (32 hexadecimal digits), for a machine in this lane."""

    def __init__(self, uuid: str, lane: str = LANES[0]) -> None:
        self.uuid = uuid
        self.lane = lane
        self.root = f"mam.{uuid}"
        self.stream = f"MAM_{uuid}"
        self.values = (self.stream, *(f"{self.stream}_own_{lane}" for lane in LANES))
        self.streams = (*self.values, *(f"{self.stream}_log_{lane}" for lane in LANES))
        """The streams of values: the shared one, then one of each lane; and those of logs after them."""
        self.beat_stream = f"MAM_{uuid}_HB"
        self.heartbeats = f"{self.root}.hb.*"
        self.heard = f"{self.root}.heard.*"
        """Where all machines hear the heartbeats: nats-server hands what came from one account on to others only from a
        stream, by its republishing."""
        self.news = f"{self.root}.news.>"
        """Where all machines hear of each value that a stream has stored, by its headers."""
        self.joins = f"{self.root}.join.*"
        self.parse = lru_cache(KNOWN_MAX)(self._parse)
        """Parses the subject of a stored value: returns `Own` for one machine's, a key for a shared one, else None."""

    def own(self, machine: str, kind: str, owner: str, name: str = "-", *, lane: str | None = None) -> str:
        """Returns the subject of a value that one machine writes, by default one in this lane; `*` matches any machine
        there."""
        return f"{self.root}.own.{lane or self.lane}.{machine}.{kind}.{token(owner)}.{token(name)}"

    def shared(self, key: str) -> str:
        """Returns the subject under which a machine writes a key of `store.shared_collection`. The server adds who it
        is, by what its account imports: `all.{machine}.{key}` is stored."""
        return f"{self.root}.all.{key}"

    def stored(self, subject: str, by: str = "*") -> str:
        """Returns the subject under which what is written to this one is stored: of a shared key by anybody, or by one
        machine."""
        is_shared = subject.startswith(everybody := f"{self.root}.all.")
        return f"{everybody}{by}.{subject.removeprefix(everybody)}" if is_shared else subject

    def writer(self, subject: str) -> str:
        """Returns the machine that has written the value of a stored subject, which nobody can forge."""
        kind, second, third, *_ = subject.removeprefix(f"{self.root}.").split(".")
        return second if kind == "all" else third

    def all_of(self, stream: str, writer: str) -> str:
        """Returns the subject of all that a machine has written in a stream."""
        if stream == self.stream:
            return f"{self.root}.all.{writer}.>"
        sort, lane = stream.split("_")[-2:]
        return f"{self.root}.{sort}.{lane}.{writer}.>"

    def log(self, machine: str, kind: str, name: str) -> str:
        return f"{self.root}.log.{self.lane}.{machine}.{kind}.{token(name)}"

    def stream_of(self, subject: str) -> str:
        """Returns the stream of a stored subject."""
        kind, lane, *_ = subject.removeprefix(f"{self.root}.").split(".")
        return self.stream if kind == "all" else f"{self.stream}_{kind}_{lane}"

    def subjects_of(self, stream: str) -> list[str]:
        """Returns what a stream takes: no other kinds than there are, so that the hub itself refuses the rest."""
        if stream == self.stream:
            return [self.stored(self.shared(key)) for key in (SETTINGS, *(f"{kind}.>" for kind in SHARED_KINDS))]
        sort, lane = stream.split("_")[-2:]
        kinds = OWN_KINDS if sort == "own" else (LOG, AUDIT)
        return [f"{self.root}.{sort}.{lane}.*.{kind}.>" for kind in kinds]

    def heartbeat(self, machine: str) -> str:
        return f"{self.root}.hb.{machine}"

    def join(self, token_id: str) -> str:
        """Returns the subject on which a token asks: that of its slot."""
        return f"{self.root}.join.{slot_of(token_id)}"

    def _parse(self, subject: str) -> Own | str | None:
        parts = subject.removeprefix(f"{self.root}.").split(".")
        if parts[0] == "own" and len(parts) == 6:
            return Own(parts[2], parts[3], unquoted(parts[4]), unquoted(parts[5]))
        return ".".join(parts[2:]) if parts[0] == "all" and len(parts) > 2 else None

    @property
    def exports(self) -> list[dict[str, str]]:
        """What the hub's account offers to the machines' accounts, which its own users alone could reach otherwise. A
        batched direct get has several answers."""
        once = [*(f"{self.root}.{kind}.>" for kind in ("own", "log", "all")), self.heartbeats, self.joins]
        once += [f"{JETSTREAM}.{call}" for call in self._calls("STREAM.INFO", "STREAM.MSG.GET")]
        batches = [{"service": f"{JETSTREAM}.{call}", "response_type": "Stream"} for call in self._calls("DIRECT.GET")]
        return [*({"service": subject} for subject in once), *batches, {"stream": self.heard}, {"stream": self.news}]

    def machine_account(self, machine: str, public: str, *, may_share: bool = True) -> dict[str, Any]:
        """Returns the account of a machine. nats-server checks the subject of a request and never that of its reply, so
        a machine must not share an account with anybody: answers return to the one who asked, whatever reply it named.
        It can write in no other's name, nor change the hub itself. It may make no consumers: what they
        deliver is stored by whatever stream takes that subject. Whether it `may_share` is a permission only, which the
        server takes by a reload."""
        writing = [f"{self.root}.{kind}.{self.lane}.{machine}.>" for kind in ("own", "log")] + [f"{self.root}.all.>"]
        calls = self._calls("STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET")
        reading = {self.api(call): f"{JETSTREAM}.{call}" for call in calls}
        services = {**{each: self.stored(each, machine) for each in (*writing, self.heartbeat(machine))}, **reading}
        account = _account(public, services, [f"{inbox(machine)}.>"], heard=[self.heard, self.news])
        if not may_share:
            account["users"][0]["permissions"]["publish"].remove(f"{self.root}.all.>")
        return account

    def joiner_account(self, slot: str, public: str | None) -> dict[str, Any]:
        """Returns the account of a slot for a token: it may ask to join. The slots exist before their tokens, as
        nats-server loses what an account imports if a reload adds it (nats-server issue 8560)."""
        asking = self.join(slot)
        return _account(public, {asking: asking}, [f"{inbox(f'join-{slot}')}.>"])

    @property
    def reception_permissions(self) -> dict[str, list[str]]:
        """Returns the permissions of the user that answers requests to join, in the hub's account: it can answer, and
        publish nowhere else."""
        return {"publish": [f"{ANSWERS}.>"], "subscribe": [self.joins, f"{inbox('reception')}.>"]}

    def api(self, call: str) -> str:
        """Returns the subject under which a machine makes a call of JetStream: under its usual one the server looks
        for streams of the machine's own account."""
        return f"{self.root}.api.{call}"

    def account(self, name: str) -> str:
        """Returns the name of a machine's or a token's account."""
        return f"MAM_{self.uuid}_{name}"

    def _calls(self, *calls: str) -> list[str]:
        return [f"{call}.{stream}" for call in calls for stream in self.streams]


SLOTS = tuple(f"{number:02}" for number in range(32))
"""The accounts for tokens: so many may be unused at once."""
JOINER = "join."
"""The beginning of the names of these accounts; no machine's name contains a dot."""
JETSTREAM = "$JS.API"
"""The prefix of JetStream's calls in the hub's own account."""
HUB = "HUB"
"""The name of the account with the streams."""
ANSWERS = "_R_"
"""The prefix of the subjects under which nats-server carries answers between accounts."""


def _account(
    public: str | None, services: Mapping[str, str], answers: Sequence[str], heard: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns an account with one user, that may use these services of the hub's account, by the subject under which it
    does, get `answers`, and hear these subjects of it."""
    permissions = {"publish": [*services], "subscribe": [*answers, *heard]}
    used = [{"service": {"account": HUB, "subject": there}, "to": here} for here, there in services.items()]
    streams = [{"stream": {"account": HUB, "subject": subject}} for subject in heard]
    users = [] if public is None else [{"nkey": public, "permissions": permissions}]
    return {"users": users, "imports": [*used, *streams]}


def slot_of(token_id: str) -> str:
    """Returns the slot of a token, with which its id begins."""
    return token_id[:2]


def inbox(name: str) -> str:
    """Returns the prefix of the subjects for a machine's answers, to which only it may subscribe."""
    return f"_INBOX_{name}"


def token(name: str) -> str:
    """Returns a name quoted as one token of a subject, as a file's name may contain dots and blanks."""
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")


def unquoted(part: str) -> str:
    """Returns the name quoted in a token."""
    return unquote(part)
