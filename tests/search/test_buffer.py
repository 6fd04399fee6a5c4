"""The responses that a search goes on from."""

import torch

from pessimal.search.buffer import Buffer


def filled(size, *values):
    buffer = Buffer(size)
    for number, value in enumerate(values):
        buffer.add(torch.tensor([number]), value)
    return buffer


def order(buffer):
    """Numbers of the responses in the order in which the search would go on from them."""
    numbers, level = [], buffer.level
    while buffer.level == level:
        numbers.append(int(buffer.point))
        buffer.exhaust()
    return numbers


def test_the_search_goes_on_from_the_best():
    assert order(filled(3, 1.0, 5.0, 3.0)) == [1, 2, 0]


def test_one_that_does_not_beat_the_worst_of_a_full_buffer_stays_out():
    assert order(filled(2, 4.0, 5.0, 3.0)) == [1, 0]
    assert order(filled(2, 4.0, 5.0, 4.0)) == [1, 0], "nor does an equal"
    assert order(filled(2, 4.0, 5.0, 4.5)) == [1, 2]


def test_without_a_buffer_it_goes_on_from_the_last_even_if_that_is_worse():
    assert order(filled(0, 5.0, 1.0)) == [1]
    assert order(filled(1, 5.0, 1.0)) == [0]


def test_a_new_response_goes_before_better_ones_near_which_all_is_seen():
    buffer = filled(3, 5.0, 1.0)
    buffer.exhaust()
    buffer.add(torch.tensor([7]), 2.0)
    assert order(buffer) == [7, 1]
    assert order(buffer) == [0, 7, 1], "then all of them one level up, the best first"
    assert buffer.level == 2


def test_renewed_responses_are_gone_on_from_again():
    buffer = filled(3, 1.0, 2.0)
    order(buffer)
    buffer.exhaust()
    buffer.renew()
    assert buffer.level == 0
    assert order(buffer) == [1, 0]
