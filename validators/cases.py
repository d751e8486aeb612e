"""Every status and every transport fault that the contract speaks of, by name.

One row a case; the names are the keys of the shipped tables, so they are stable. What a
row's steps mean is in `script`, what a client does with them is measured by `learn`.
"""

import gzip
import zlib
from collections.abc import Mapping

from .contract import STATUSES
from .script import (
    Address,
    Case,
    End,
    Pause,
    Reads,
    Redirect,
    Step,
    alternating,
    always,
    in_turn,
    nobody,
    pooled,
)
from .wire import COMPLETION, ERROR, OK, answer, chunked, head, plain

FIN, RST, STALL, LINGER = End.FIN, End.RST, End.STALL, End.LINGER
SOON = Pause(0.02)  # long enough for the client to have read what was sent, so that an end comes after it

GARBAGE = b"BLARGH not http\r\n\r\n"
GZIPPED = gzip.compress(COMPLETION, mtime=0)
UPLOAD = 6 << 20  # bytes; more than the socket buffers hold, so an early answer leaves part of it unread
LARGE = b'{"x": "' + b"a" * (16 << 20) + b'"}'

STATUS_CASES: Mapping[int, Case] = {status: always(plain(status)) for status in STATUSES}


def _cut(raw: bytes) -> bytes:
    return raw[:-10]


def _header_lines(count: int) -> bytes:
    return answer(200, COMPLETION, [f"X-{n}: v" for n in range(count)])


def _header_line(size: int, status: int = 200) -> bytes:
    return answer(status, COMPLETION, ["X-Big: " + "a" * size])


def _encoded(coding: str, body: bytes = COMPLETION, status: int = 200) -> bytes:
    return answer(status, body, [f"Content-Encoding: {coding}"])


def _early(status: int, end: Step) -> Case:
    raw = answer(status, ERROR, ["Connection: close"])
    return always(raw, end, reads=Reads.HEAD, body_bytes=UPLOAD)


_REDIRECTS: Mapping[str, Case] = {
    "redirect_301_same_origin": in_turn([Redirect(301, "/landed")], [OK]),
    "redirect_302_same_origin": in_turn([Redirect(302, "/landed")], [OK]),
    "redirect_303_same_origin": in_turn([Redirect(303, "/landed")], [OK]),
    "redirect_307_same_origin": in_turn([Redirect(307, "/landed")], [OK]),
    "redirect_308_same_origin": in_turn([Redirect(308, "/landed")], [OK]),
    "redirect_302_dead_port": always(Redirect(302, "http://127.0.0.1:{dead}/landed")),
    "redirect_307_dead_port": always(Redirect(307, "http://127.0.0.1:{dead}/landed")),
    "redirect_307_cross_origin": always(Redirect(307, "http://127.0.0.1:{other}/landed")),
    "redirect_307_loop": always(Redirect(307, "/again"), cap=80),
    "redirect_307_ftp": always(Redirect(307, "ftp://x/y")),
    "redirect_307_invalid_location": always(Redirect(307, "http://")),
}

_CONNECTIONS: Mapping[str, Case] = {
    "connection_refused": nobody(Address.REFUSED),
    "never_accepted": nobody(Address.UNACCEPTED),
    "backlog_full": nobody(Address.BACKLOG_FULL),
    "name_not_found": nobody(Address.UNRESOLVABLE),
    "tls_to_plain_port": Case(
        rounds=always(Pause(0.05), plain(400), FIN).rounds,
        reads=Reads.NOTHING,
        address=Address.TLS_TO_PLAIN,
    ),
    "url_port_too_high": nobody(Address.PORT_TOO_HIGH),
    "url_without_scheme": nobody(Address.NO_SCHEME),
    "fin_on_accept": always(FIN, reads=Reads.NOTHING),
    "fin_with_request_unread": always(SOON, FIN, reads=Reads.NOTHING),
    "fin_after_request": always(FIN),
    "fin_before_upload_is_read": always(FIN, reads=Reads.HEAD, body_bytes=UPLOAD),
    "rst_on_accept": always(RST, reads=Reads.NOTHING),
    "rst_after_request": always(RST),
    "fin_in_status_line": always(b"HTTP/1.1 20", SOON, FIN),
    "fin_in_headers": always(b"HTTP/1.1 200 OK\r\nContent-Type: appl", SOON, FIN),
    "rst_in_headers": always(b"HTTP/1.1 200 OK\r\nContent-Type: appl", SOON, RST),
    "never_answers": always(STALL),
    "drips_status_line": always(*(step for byte in b"HTTP/1.1 200 OK\r\n" for step in (bytes([byte]), Pause(1.0)))),
    "slow_200": always(Pause(1.0), OK),
    "slow_503": always(Pause(0.1), plain(503)),
}


def _truncated() -> dict[str, Case]:
    """Three cuts for each status whose cut might be treated differently."""
    rows: dict[str, Case] = {}
    for status in (200, 400, 500, 503):
        raw = plain(status)
        rows[f"fin_in_body_{status}"] = always(_cut(raw), SOON, FIN)
        rows[f"rst_in_body_{status}"] = always(_cut(raw), SOON, RST)
        rows[f"fin_after_headers_{status}"] = always(raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n", SOON, FIN)
    for status in (200, 500):
        raw = chunked(status, COMPLETION, last_chunk=False)
        rows[f"fin_in_chunked_{status}"] = always(raw, SOON, FIN)
        rows[f"rst_in_chunked_{status}"] = always(raw, SOON, RST)
    for status in (200, 409, 500):
        rows[f"stall_in_body_{status}"] = always(_cut(plain(status)), STALL)
    return rows


_BODIES: Mapping[str, Case] = {
    "chunked": always(chunked(200, COMPLETION)),
    "chunked_bad_size": always(answer(200, b"ZZ\r\nabc\r\n", ["Transfer-Encoding: chunked"], length=False)),
    "close_delimited": always(answer(200, COMPLETION, ["Connection: close"], length=False), FIN),
    "close_delimited_cut": always(answer(200, COMPLETION[:-10], ["Connection: close"], length=False), FIN),
    "body_not_json": always(answer(200, b"{not json")),
    "body_empty": always(answer(200)),
    "body_html_type": always(answer(200, COMPLETION, content_type="text/html")),
    "body_untyped": always(answer(200, COMPLETION, content_type=None)),
    "body_nan": always(answer(200, b'{"a": NaN}')),
    "body_minus_infinity": always(answer(200, b'{"a": -Infinity}')),
    "body_bom": always(answer(200, b"\xef\xbb\xbf" + COMPLETION)),
    "body_leading_whitespace": always(chunked(200, b" \n \n" + COMPLETION)),
    "body_sse": always(answer(200, b"data: " + COMPLETION + b"\n\ndata: [DONE]\n\n", content_type="text/event-stream")),
    "body_null": always(answer(200, b"null")),
    "body_error_object": always(answer(200, ERROR)),
    "body_large": always(answer(200, LARGE)),
    "body_lone_surrogate": always(answer(200, b'{"a": "\\ud800"}')),
    "body_not_utf8_200": always(answer(200, b'{"a":"\xff\xfe"}')),
    "body_not_utf8_400": always(answer(400, b"\xff\xfe\x80bad")),
    "body_not_utf8_409": always(answer(409, b"\xff\xfe\x80bad")),
    "body_not_utf8_500": always(answer(500, b"\xff\xfe\x80bad")),
    "body_not_utf8_503": always(answer(503, b"\xff\xfe\x80bad")),
    "body_empty_500": always(answer(500)),
    "body_longer_than_length": always(OK + b"JUNKJUNK\r\n\r\n"),
}

_HEADS: Mapping[str, Case] = {
    "retry_after_429": always(answer(429, ERROR, ["Retry-After: 60"])),
    "retry_after_503": always(answer(503, ERROR, ["Retry-After: 1"])),
    "retry_after_409": always(answer(409, ERROR, ["Retry-After: 1"])),
    "should_retry_true_404": always(answer(404, ERROR, ["X-Should-Retry: true"])),
    "should_retry_false_409": always(answer(409, ERROR, ["X-Should-Retry: false"])),
    "should_retry_false_500": always(answer(500, ERROR, ["X-Should-Retry: false"])),
    "garbage_then_fin": always(GARBAGE, FIN),
    "garbage_kept_open": always(b"\x00\x01\x02\x03\r\n\r\n"),
    "ssh_banner": always(b"SSH-2.0-OpenSSH_9.6\r\n", FIN),
    "http_0_9": always(COMPLETION, FIN),
    "http_1_0": always(answer(200, COMPLETION, version="HTTP/1.0"), FIN),
    "http_1_0_without_length": always(answer(200, COMPLETION, version="HTTP/1.0", length=False), FIN),
    "http_2_0_status_line": always(answer(200, COMPLETION, version="HTTP/2.0")),
    "connection_close_200": always(answer(200, COMPLETION, ["Connection: close"]), FIN),
    "connection_close_503": always(answer(503, ERROR, ["Connection: close"]), FIN),
    "no_reason_phrase": always(b"HTTP/1.1 200\r\nContent-Length: %d\r\n\r\n" % len(COMPLETION) + COMPLETION),
    "bare_lf": always(b"HTTP/1.1 200 OK\nContent-Length: %d\n\n" % len(COMPLETION) + COMPLETION),
    "header_space_before_colon": always(answer(200, COMPLETION, ["X-A : b"])),
    "header_without_colon": always(answer(200, COMPLETION, ["XABC"])),
    "header_folded": always(answer(200, COMPLETION, ["X-A: b\r\n  folded"])),
    "header_nul": always(answer(200, COMPLETION, ["X-A: b\x00c"])),
    "header_latin1": always(answer(200, COMPLETION, ["X-A: caf\xe9"])),
    "content_length_twice": always(answer(200, COMPLETION, [f"Content-Length: {len(COMPLETION)}"])),
    "content_length_twice_differing": always(answer(200, COMPLETION, [f"Content-Length: {len(COMPLETION) + 1}"])),
    "content_length_and_chunked": always(chunked(200, COMPLETION, [f"Content-Length: {len(COMPLETION)}"])),
    "content_length_negative": always(answer(200, COMPLETION, ["Content-Length: -1"], length=False)),
    "status_099": always(answer("099", COMPLETION)),
    "status_600": always(answer(600, COMPLETION)),
    "status_999": always(answer(999, COMPLETION)),
    "status_1000": always(answer(1000, COMPLETION)),
    "header_line_8000": always(_header_line(8000)),
    "header_line_8180": always(_header_line(8180)),
    "header_line_8192": always(_header_line(8192)),
    "header_line_9000": always(_header_line(9000)),
    "header_line_20000": always(_header_line(20_000)),
    "header_line_70000": always(_header_line(70_000)),
    "header_line_9000_on_503": always(_header_line(9000, 503)),
    "reason_phrase_9000": always(answer(200, COMPLETION, reason="a" * 9000)),
    "header_lines_100": always(_header_lines(100)),
    "header_lines_127": always(_header_lines(127)),
    "header_lines_130": always(_header_lines(130)),
    "header_lines_200": always(_header_lines(200)),
    "header_lines_1000": always(_header_lines(1000)),
    "continue_then_200": always(head(100), SOON, OK),
    "early_hints_then_200": always(head(103, ["Link: </a>"]), SOON, OK),
    "processing_then_200": always(head(102), head(102), head(102), OK),
    "continue_then_silence": always(head(100), STALL),
    "switching_protocols": always(head(101, ["Upgrade: x", "Connection: Upgrade"]), Pause(0.2), FIN),
}

_ENCODINGS: Mapping[str, Case] = {
    "gzip_200": always(_encoded("gzip", GZIPPED)),
    "deflate_200": always(_encoded("deflate", zlib.compress(COMPLETION))),
    "gzip_truncated": always(_encoded("gzip", GZIPPED[:-12])),
    "gzip_lie_200": always(_encoded("gzip")),
    "gzip_lie_409": always(_encoded("gzip", ERROR, 409)),
    "gzip_lie_500": always(_encoded("gzip", ERROR, 500)),
    "gzip_lie_503": always(_encoded("gzip", ERROR, 503)),
    "br_lie_200": always(_encoded("br")),
    "zstd_lie_200": always(_encoded("zstd")),
    "identity_200": always(_encoded("identity")),
    "unknown_coding_200": always(_encoded("bogus")),
}

_REUSE: Mapping[str, Case] = {
    "reused_then_fin": pooled([OK], [FIN], [OK], gap_s=0.02),
    "reused_then_rst": pooled([OK], [RST], [OK], gap_s=0.02),
    "reused_then_cut_head": pooled([OK], [b"HTTP/1.1 2", FIN], [OK], gap_s=0.02),
    "reused_then_408": pooled([OK], [answer(408, headers=["Connection: close"]), FIN], [OK], gap_s=0.02),
    "idle_closed_before": pooled([OK, FIN], gap_s=0.05),
    "idle_closed_at_once": pooled([OK, FIN], gap_s=0.0),
    "idle_reset_before": pooled([OK, RST], gap_s=0.05),
    "idle_junk_before": pooled([OK, SOON, b"JUNKJUNK\r\n\r\n"], [OK], gap_s=0.1),
    "idle_408_before": pooled([OK, Pause(0.01), answer(408, headers=["Connection: close"]), FIN], [OK], gap_s=0.1),
}

_UPLOADS: Mapping[str, Case] = {
    "upload_200": always(OK, body_bytes=UPLOAD),
    **{
        f"early_{status}_then_{end.name.lower()}": _early(status, end)
        for status in (400, 409, 413, 503)
        for end in (FIN, RST, LINGER)
    },
}

_SEQUENCES: Mapping[str, Case] = {
    "503_25_times_then_200": in_turn(*[[plain(503)]] * 25, [OK], cap=60),
    "500_twice_then_200": in_turn([plain(500)], [plain(500)], [OK]),
    "500_503_alternating": alternating([plain(500)], [plain(503)]),
    "rst_500_alternating": alternating([RST], [plain(500)]),
    "garbage_503_alternating": alternating([GARBAGE, FIN], [plain(503)]),
    "garbage_fin_alternating": alternating([GARBAGE, FIN], [FIN]),
}

FAULT_CASES: Mapping[str, Case] = {
    **_CONNECTIONS,
    **_truncated(),
    **_BODIES,
    **_HEADS,
    **_ENCODINGS,
    **_REDIRECTS,
    **_REUSE,
    **_UPLOADS,
    **_SEQUENCES,
}
