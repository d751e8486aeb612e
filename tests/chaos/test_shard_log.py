import hashlib

from gymproof.chaos.history import Delivery, Lease
from gymproof.chaos.served import LogReader, read_served
from gymproof.chaos.shard_log import ShardLog
from gymproof.chaos.tags import tag

CHAT = "/v1/chat/completions"


def test_an_answered_request_is_a_whole_record(tmp_path):
    log = ShardLog(tmp_path / "log")
    body = f'{{"messages": "{tag("r1.t0")}"}}'.encode()

    log.response(log.request(CHAT, body), 200, "beef", 9)

    [served] = read_served(tmp_path / "log", 2)
    assert (served.shard, served.call, served.path) == (2, "r1.t0", CHAT)
    assert (served.ending, served.status, served.response_sha256) == (Delivery.ANSWERED, 200, "beef")
    assert served.request_sha256 == hashlib.sha256(body).hexdigest()
    assert served.ended is not None
    assert served.started <= served.ended


def test_a_client_that_left_and_work_without_an_end_are_told_apart(tmp_path):
    log = ShardLog(tmp_path / "log")
    log.disconnect(log.request(CHAT, b""))
    log.request(CHAT, b"")

    left, running = read_served(tmp_path / "log", 0)

    assert (left.ending, left.status) == (Delivery.CANCELLED, None)
    assert (running.ending, running.ended) == (Delivery.RUNNING, None)


def test_a_restarted_shard_goes_on_in_the_same_file(tmp_path):
    first = ShardLog(tmp_path / "log")
    first.request(CHAT, b"")
    second = ShardLog(tmp_path / "log")
    second.response(second.request(CHAT, b""), 200, "", 0)

    assert [served.ending for served in read_served(tmp_path / "log", 0)] == [Delivery.RUNNING, Delivery.ANSWERED]


def test_only_generations_of_the_present_life_are_in_flight(tmp_path):
    reader = LogReader(tmp_path / "log", 0)
    assert reader.in_flight() == 0
    ShardLog(tmp_path / "log").request(CHAT, b"")
    assert reader.in_flight() == 1
    log = ShardLog(tmp_path / "log")
    assert reader.in_flight() == 0

    request = log.request("/v1/completions", b"")
    log.request("/tokenize", b"")

    assert reader.in_flight() == 1
    log.disconnect(request)
    assert reader.in_flight() == 0
    assert len(reader.served()) == 3


def test_a_line_that_was_cut_off_waits_for_its_end(tmp_path):
    log = ShardLog(tmp_path / "log")
    log.request(CHAT, b"")
    lines = (tmp_path / "log").read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(lines[:-5])
    reader = LogReader(cut, 0)

    assert reader.served() == []
    cut.write_bytes(lines)
    assert len(reader.served()) == 1


def test_a_missing_file_has_no_records(tmp_path):
    assert read_served(tmp_path / "none", 0) == []


def test_without_a_file_nothing_is_written_and_nothing_fails():
    log = ShardLog(None)

    log.disconnect(log.request(CHAT, b""))


def test_a_leg_of_two_is_known_by_its_transfer_and_its_body_without_the_parameters(tmp_path):
    log = ShardLog(tmp_path / "log")
    prefill = log.request(CHAT, b'{"kv_transfer_params":{"do_remote_decode":true}}', "7")
    log.pin(prefill, "t")
    log.release(prefill, "read")
    log.request(CHAT, b'{"a": 1,"kv_transfer_params":{"do_remote_prefill":true,"remote_request_id":"t"}}', "7")
    log.request(CHAT, b'{"a": 1}', "8")

    first, second, alone = read_served(tmp_path / "log", 0)

    assert (first.leg, first.transfer, first.request_id, first.lease) == ("prefill", "t", "7", Lease.READ)
    assert (second.leg, second.transfer, second.request_id, second.lease) == ("decode", "t", "7", Lease.NONE)
    assert second.request_sha256 == alone.request_sha256 == hashlib.sha256(b'{"a": 1}').hexdigest()
    assert (alone.leg, alone.transfer, alone.request_id) == ("", "", "")
