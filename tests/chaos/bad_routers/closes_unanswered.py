"""Closes the connection when it has failed, and says nothing."""

from base import Router, main


class ClosesUnanswered(Router):
    max_attempts = 1

    async def route(self, request, body):
        answer = await super().route(request, body)
        if answer.status == self.failed_status:
            request.transport.abort()
        return answer


main(ClosesUnanswered)
