"""`kv_transfer_params` as vLLM's NixlConnector has them in pull mode: what a prefill shard keeps, a decode shard pulls.

A prefill shard keeps the blocks of a request that ended by itself until a decode shard has read them, or until a lease
runs out. The side channel between them is HTTP on loopback here; it answers as long as the API server does, as a read
over the network needs no engine. Read from vLLM 0.32, but for the heartbeats, by which a decode server renews a lease
while it waits: here it waits for nothing. It is told of blocks that are gone; vLLM's may read what is there instead.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ..asking import post, status_of
from ..shard_log import PARAMS, ShardLog
from .http import Exchange, Request, Server
from .settings import Settings

_HANDSHAKE_S = 5.0
_HOST = "127.0.0.1"
_LEAVES_BLOCKS = frozenset({"length", "stop"})
_WHY = {"/read": "read", "/reject": "rejected"}  # what a decode shard may say


class TransferError(Exception):
    """The blocks could not be fetched."""


@dataclass(frozen=True, slots=True)
class _Pin:
    request: str  # its id in the log
    lease: asyncio.TimerHandle


class Connector:
    """One shard's half of all transfers. Without a role it takes parameters, and does nothing with them."""

    def __init__(self, settings: Settings, log: ShardLog) -> None:
        self._role = settings.role
        self._lease_s = settings.kv_lease_s
        self._log = log
        self._pins: dict[str, _Pin] = {}
        self._side_channel = Server(self._answer, keep_alive_s=_HANDSHAKE_S)
        self._told: set[asyncio.Task[int | None]] = set()  # kept until they are done
        self._expired = 0
        self._failed = 0

    async def listen(self) -> None:
        """Open the side channel of a prefill shard."""
        if self._role == "prefill":
            await self._side_channel.listen(0)

    def stop(self) -> None:
        """Close it: what was kept is lost."""
        self._side_channel.stop()

    def stats(self) -> dict[str, int]:
        """For `/metrics`: totals since the start, nothing without a role."""
        return {} if self._role is None else {"kv_expired": self._expired, "failed_transfers": self._failed}

    # The prefill shard

    def keep(self, body: dict[str, Any], finish: str | None, name: str, number: str) -> dict[str, Any] | None:
        """Keep the blocks of a finished request, if it asked for that and ended by itself; the parameters for them.

        `name` is the request's own, `number` its id in the log.
        """
        asked = _params(body).get("do_remote_decode") is True
        if self._role != "prefill" or not asked or finish not in _LEAVES_BLOCKS:
            return None
        transfer = f"{name}-{number}"
        lease = asyncio.get_running_loop().call_later(self._lease_s, self._expire, transfer)
        self._pins[transfer] = _Pin(number, lease)
        self._log.pin(number, transfer)
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [[0]],
            "remote_engine_id": f"{_HOST}:{self._side_channel.port}",
            "remote_request_id": transfer,
            "remote_host": _HOST,
            "remote_port": self._side_channel.port,
            "tp_size": 1,
            "transfer_mode": "pull",
        }

    def _expire(self, transfer: str) -> None:
        self._expired += 1
        self._release(transfer, "expired")

    def _release(self, transfer: str, why: str) -> bool:
        pin = self._pins.pop(transfer, None)
        if pin is None:
            return False
        pin.lease.cancel()
        self._log.release(pin.request, why)
        return True

    async def _answer(self, request: Request, exchange: Exchange) -> None:
        known = request.path in _WHY and self._release(request.body.decode(), _WHY[request.path])
        exchange.reply(HTTPStatus.OK if known else HTTPStatus.NOT_FOUND, b"")

    # The decode shard

    async def pull(self, body: dict[str, Any]) -> None:
        """Fetch what the request's parameters name, if they name any. Raises TransferError."""
        # A read that has begun ends, and frees the blocks, whether or not the client still waits.
        if (read := self._tell("/read", _params(body))) and await asyncio.shield(read) != HTTPStatus.OK:
            self._failed += 1
            raise TransferError(f"the blocks of {_params(body).get('remote_request_id')!r} cannot be had")

    def reject(self, body: dict[str, Any]) -> None:
        """Tell the prefill shard that a request of its gets an error here. If that is lost, the lease runs out."""
        self._tell("/reject", _params(body))

    def _tell(self, path: str, params: dict[str, Any]) -> asyncio.Task[int | None] | None:
        """Have the prefill shard release what the parameters name, if they name anything."""
        if self._role != "decode" or params.get("do_remote_prefill") is not True:
            return None
        url = f"http://{params.get('remote_host')}:{params.get('remote_port')}"
        told = post(url, str(params.get("remote_request_id")).encode(), path)
        task = asyncio.get_running_loop().create_task(status_of(url, told, within_s=_HANDSHAKE_S))
        self._told.add(task)
        task.add_done_callback(self._told.discard)
        return task


def _params(body: dict[str, Any]) -> dict[str, Any]:
    params = body.get(PARAMS)
    return params if isinstance(params, dict) else {}
