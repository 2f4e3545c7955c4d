"""How a leader is chosen.

A replica that has not heard from a leader for its randomised timeout first holds a trial (thesis
9.6): it asks whether it would win in the next term. Nobody changes term or vote for a trial, so a
replica that was cut off comes back without disturbing anyone. When a majority would vote for it, it
raises its term, votes for itself and asks in earnest.

A voter refuses, even in a higher term, while it hears from a leader (thesis 4.2.3); the leader in
turn steps down when it no longer hears from a majority. An election that the leader itself wants,
by handing over, is exempt.

A replica whose disk has lost the end of its log without telling whether it was acknowledged is in
doubt: it votes for logs that reach as far as its own may have reached, and does not campaign. The
doubt ends when its log has got there, or when nobody has led for `DOUBT_TIMEOUTS` election
timeouts: then no replica that is left holds more, and the loss was most likely a torn write.
"""

from penstock.ids import Term
from penstock.raft.effects import Role
from penstock.raft.leader import LeaderRules
from penstock.raft.membership import Member
from penstock.raft.messages import TimeoutNow, VoteRequest, VoteResponse

DOUBT_TIMEOUTS = 30


class ElectionRules(LeaderRules):
    """Timeouts, campaigns and votes."""

    __slots__ = ("_answers", "_is_transfer")

    _answers: dict[Member, bool]
    """Who granted and who refused in the campaign under way."""
    _is_transfer: bool

    def _prepare(self) -> None:
        super()._prepare()
        self._answers = {}
        self._is_transfer = False

    def _leave_role(self) -> None:
        super()._leave_role()
        self._answers = {}

    def _tick_election(self) -> None:
        self._elapsed += 1
        if self._elapsed < self._timeout:
            return
        if self._elapsed >= DOUBT_TIMEOUTS * self._settings.election_ticks:
            self._end_doubt()
        if self._may_campaign():
            self._hold_trial()
        elif self.leader is not None:
            self._follow(self.term, None)

    def _hasten_election(self) -> None:
        """The link to the leader broke: campaign soon, each replica after a delay of its own.

        The leader is no longer protected from others who have lost it. Those who still hear it
        refuse the trial, and with its next message this replica follows it again.
        """
        election_ticks = self._settings.election_ticks
        self._elapsed = max(self._elapsed, election_ticks)
        self._timeout = self._elapsed + 1 + self._randrange(max(1, election_ticks // 2))

    # Campaigns.

    def _hold_trial(self) -> None:
        """Ask whether an election would be won, without changing anything."""
        self._begin_campaign(Role.TRIAL_CANDIDATE)
        self._ask_voters(Term(self.term + 1))
        self._take_answer(self.member, is_granted=True)

    def _campaign(self, *, is_transfer: bool) -> None:
        """Stand for election in a new term (section 5.2)."""
        self.term = Term(self.term + 1)
        self.vote = self._node
        self._is_hard_changed = True
        self._is_transfer = is_transfer
        self._begin_campaign(Role.CANDIDATE)
        # The requests and the replica's own vote wait until that vote is persisted.
        self._ask_voters(self.term)

    def _begin_campaign(self, role: Role) -> None:
        self._leave_role()
        self._elapsed = 0
        self._timeout = self._new_timeout()
        self._set_role(role, None)

    def _ask_voters(self, term: Term) -> None:
        is_trial = self.role is Role.TRIAL_CANDIDATE
        for voter in self._memberships.current.voters:
            if voter.node == self._node:
                continue
            self._send(
                VoteRequest(
                    self._node,
                    voter.node,
                    term,
                    self.last_index,
                    self._log.last_term,
                    is_trial,
                    self._is_transfer and not is_trial,
                )
            )

    def _vote_persisted(self) -> None:
        """Term and vote are on disk: a candidate may count its own vote."""
        if self.role is Role.CANDIDATE and self.vote == self._node:
            self._take_answer(self.member, is_granted=True)

    def _on_vote_response(self, message: VoteResponse) -> None:
        expected = Role.TRIAL_CANDIDATE if message.is_trial else Role.CANDIDATE
        if self.role is expected:
            self._take_answer(
                Member(message.sender, message.incarnation), is_granted=message.is_granted
            )

    def _take_answer(self, member: Member, *, is_granted: bool) -> None:
        """Count one answer per voter; only voters of the membership in force count."""
        self._answers.setdefault(member, is_granted)
        membership = self._memberships.current
        answers = [self._answers[voter] for voter in membership.voters if voter in self._answers]
        granted = sum(answers)
        if granted >= membership.quorum:
            self._win()
        elif len(answers) - granted > len(membership.voters) - membership.quorum:
            self._follow(self.term, None)

    def _win(self) -> None:
        if self.role is Role.TRIAL_CANDIDATE:
            self._campaign(is_transfer=False)
        else:
            self._lead()

    # Votes.

    def _on_vote_request(self, message: VoteRequest) -> None:
        is_granted = self._grants_vote(message)
        if is_granted and not message.is_trial:
            self._elapsed = 0
            if self.vote != message.sender:
                self.vote = message.sender
                self._is_hard_changed = True
        term = message.term if is_granted else self.term
        self._answer_vote(message, term, is_granted=is_granted)

    def _answer_vote(self, message: VoteRequest, term: Term, *, is_granted: bool) -> None:
        self._send(
            VoteResponse(
                self._node,
                message.sender,
                term,
                is_granted,
                message.is_trial,
                self.member.incarnation,
            )
        )

    def _grants_vote(self, message: VoteRequest) -> bool:
        """One vote per term, for a log at least as complete, with a whole memory."""
        return (
            self._may_vote()
            and self._is_vote_free(message)
            and self._is_up_to_date(message.last_index, message.last_term)
        )

    def _is_vote_free(self, message: VoteRequest) -> bool:
        """Whether no other candidate has this term's vote (section 5.2)."""
        if message.is_trial:
            return message.term > self.term
        return self.vote == message.sender or (self.vote is None and self.leader is None)

    def _is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """Whether a log that ends so is at least as complete as this one (section 5.4.1).

        This one counts as it was before its disk may have lost a part of it.
        """
        own = (self._log.last_term, self._log.last_index)
        return (last_term, last_index) >= max(own, self._doubt)

    def _protects_leader(self, message: VoteRequest) -> bool:
        """Whether a leader was heard from too recently to help another one into office."""
        return (
            not message.is_transfer
            and self.leader is not None
            and self._elapsed < self._settings.election_ticks
        )

    # Taking over.

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        is_from_leader = self.leader is None or self.leader == message.sender
        if self.role is Role.FOLLOWER and is_from_leader and self._may_campaign():
            self._campaign(is_transfer=True)
