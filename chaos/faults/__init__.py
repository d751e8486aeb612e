"""The faults, by the name that a scenario file uses."""

from .abort import Abort
from .accept_close import AcceptClose
from .accept_reset import AcceptReset
from .bad_requests import BadRequests
from .base import Fault
from .big_header import BigHeader
from .black_hole import BlackHole
from .close_after_request import CloseAfterRequest
from .cut import Cut
from .cut_body import CutBody
from .cut_headers import CutHeaders
from .double_length import DoubleLength
from .dribble import Dribble
from .dribble_body import DribbleBody
from .garbage import Garbage
from .hang_ups import HangUps
from .idle_close import IdleClose
from .keepalive_race import KeepaliveRace
from .kill import Kill
from .kill_node import KillNode
from .latency import Latency
from .many_headers import ManyHeaders
from .pause import Pause
from .refused import Refused
from .reset import Reset
from .reset_after_request import ResetAfterRequest
from .router_restart import RouterRestart
from .sleep import Sleep
from .stall import Stall
from .stall_body import StallBody
from .status import Status
from .stop import Stop
from .terminate import Terminate
from .wrong_body import WrongBody

FAULTS: dict[str, type[Fault]] = {
    # on a shard's processes
    "kill": Kill,
    "kill_node": KillNode,
    "stop": Stop,
    "terminate": Terminate,
    "pause": Pause,
    "sleep": Sleep,
    # on the network, by Toxiproxy
    "refused": Refused,
    "latency": Latency,
    "stall": Stall,
    "reset": Reset,
    "cut": Cut,
    "dribble": Dribble,
    # on the wire, byte by byte, by a scripted socket
    "accept_close": AcceptClose,
    "accept_reset": AcceptReset,
    "black_hole": BlackHole,
    "close_after_request": CloseAfterRequest,
    "reset_after_request": ResetAfterRequest,
    "cut_headers": CutHeaders,
    "cut_body": CutBody,
    "stall_body": StallBody,
    "dribble_body": DribbleBody,
    "garbage": Garbage,
    "big_header": BigHeader,
    "many_headers": ManyHeaders,
    "double_length": DoubleLength,
    "status": Status,
    "wrong_body": WrongBody,
    "abort": Abort,
    "keepalive_race": KeepaliveRace,
    "idle_close": IdleClose,
    # on the router and its clients
    "router_restart": RouterRestart,
    "hang_ups": HangUps,
    "bad_requests": BadRequests,
}
