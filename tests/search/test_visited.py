"""The set of responses seen, against a plain set of tuples."""

import numpy as np
import torch

from pessimal.search.visited import Visited, hashed, unseen


def responses(n, length, vocabulary, seed=0):
    return torch.randint(vocabulary, (n, length), generator=torch.Generator().manual_seed(seed))


def test_it_says_what_a_plain_set_says():
    visited, plain = Visited(), set()
    for seed in range(30):
        drawn = responses(50, 3, 9, seed)  # 729 responses: soon most have been seen
        expected = []
        for row in map(tuple, drawn.tolist()):
            expected.append(row not in plain)
            plain.add(row)
        assert visited.new(drawn).tolist() == expected
        visited.add(drawn)
        assert len(visited) == len(plain)
    assert not visited.new(drawn).any()


def test_asking_puts_nothing_in():
    visited, drawn = Visited(), responses(5, 4, 1000)
    assert visited.new(drawn).all()
    assert visited.new(drawn).all()


def test_order_and_place_of_tokens_matter():
    rows = torch.tensor([[1, 2, 3], [3, 2, 1], [1, 3, 2], [2, 2, 2], [0, 0, 6], [6, 0, 0], [0, 6, 0]])
    assert len(set(hashed(rows).tolist())) == len(rows)


def test_no_two_of_a_whole_neighbourhood_and_of_all_small_responses_share_a_hash():
    small = torch.cartesian_prod(*[torch.arange(48)] * 3)
    assert len(set(hashed(small).tolist())) == 48**3
    near = torch.full((4, 50_000, 4), 7)
    for place in range(4):
        near[place, :, place] = torch.arange(50_000)
    assert len(set(hashed(near.reshape(-1, 4)).tolist())) == 4 * 50_000 - 3, (
        "of which one is there four times"
    )


def test_the_bits_of_a_hash_are_as_good_as_random():
    bits = (hashed(responses(20_000, 4, 128_256))[:, None] >> np.arange(64, dtype=np.uint64)) & 1
    assert abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / 20_000**0.5


def test_unseen_are_given_once_and_only_where_they_retokenize():
    visited = Visited()
    drawn = torch.tensor([[1], [2], [1], [3], [4]])
    asked = []

    def odd(rows):
        asked.extend(rows[:, 0].tolist())
        return rows[:, 0] % 2 == 1

    assert unseen(drawn, visited, retokenizes=odd).tolist() == [[1], [3]]
    assert len(unseen(drawn, visited, retokenizes=odd)) == 0
    assert asked == [1, 2, 3, 4], "what does not retokenize is not tried again either"


def test_no_more_are_taken_than_are_wanted_and_the_others_stay_new():
    visited, drawn = Visited(), torch.arange(10)[:, None]
    assert unseen(drawn, visited, most=3)[:, 0].tolist() == [0, 1, 2]
    assert unseen(drawn, visited, most=3)[:, 0].tolist() == [3, 4, 5]


def test_one_that_is_wanted_is_looked_for_among_all():
    found = unseen(torch.arange(10)[:, None], Visited(), retokenizes=lambda rows: rows[:, 0] == 8, most=1)
    assert found.tolist() == [[8]]
