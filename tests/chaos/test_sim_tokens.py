from hypothesis import given
from hypothesis import strategies as st

from gymproof.chaos.sim.tokens import EOS, decode, encode, generate, logprob, render

PROMPTS = st.lists(st.integers(0, 700), min_size=1, max_size=50)


@given(st.text())
def test_any_text_comes_back_from_its_tokens(text):
    assert decode(encode(text), keep_special=True) == text


@given(PROMPTS, st.integers(0, 200), st.integers(-(2**60), 2**60))
def test_a_generated_text_encodes_to_the_tokens_that_were_generated(prompt, length, seed):
    tokens, _ = generate(seed, prompt, length, ignore_eos=True)

    assert encode(decode(tokens)) == tokens


@given(PROMPTS)
def test_an_answer_follows_from_seed_and_prompt_alone(prompt):
    answers = [generate(seed, prompt, 100, ignore_eos=True)[0] for seed in (1, 1, 2)]

    assert answers[0] == answers[1] != answers[2]


@given(PROMPTS, st.integers(1, 100))
def test_an_answer_stops_at_eos_or_at_its_length(prompt, limit):
    tokens, finish = generate(0, prompt, limit, ignore_eos=False)

    assert len(tokens) <= limit
    assert (finish == "stop") == (tokens[-1] == EOS)
    if finish == "length":
        assert len(tokens) == limit


def test_ignore_eos_makes_the_length_exact():
    tokens, finish = generate(0, [1, 2, 3], 2000, ignore_eos=True)

    assert (len(tokens), finish) == (2000, "length")


def test_a_longer_conversation_keeps_the_tokens_of_a_shorter_one():
    turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": " dam bod"}]

    short, long = encode(render(turns[:1], generation_prompt=False)), encode(render(turns))

    assert long[: len(short)] == short


def test_all_shapes_of_content_have_a_rendering():
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}

    rendered = render([parts, call], generation_prompt=False)

    assert rendered == '<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n[{"id":"1"}]<|im_end|>\n'


def test_log_probabilities_are_negative_and_repeatable():
    values = [logprob(token, position) for token in range(500) for position in range(50)]

    assert max(values) < 0
    assert logprob(300, 4) == logprob(300, 4)
