"""Answers 504 when the deadline has passed, as web frameworks do by default."""

from base import Router, main


class Timeout504(Router):
    late_status = 504


main(Timeout504)
