"""Answers 400 when it has failed, which Gym may score as a rollout."""

from base import Router, main


class Own400(Router):
    failed_status = nobody_status = late_status = 400


main(Own400)
