"""What must hold after every event, whatever was lost, repeated, delayed or forgotten."""

from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import Effects, Entry, Message, Role, VoteRequest, VoteResponse

from .group import Host


class Referee:
    """Watches all hosts of a group and remembers what was ever promised."""

    def __init__(self) -> None:
        self.leaders: dict[Term, NodeId] = {}
        self.committed: list[tuple[Term, bytes]] = []
        self.graves: list[Host] = []
        """Hosts that lost their disks: what they acknowledged before may still be counted."""
        self._written: dict[tuple[int, Term], tuple[bytes, Term | None]] = {}

    def check(self, host: Host, hosts: dict[int, Host], effects: Effects | None) -> None:
        """Check one host after one event."""
        node = host.node
        if node.role is Role.LEADER:
            self._check_one_leader_per_term(host)
        if effects is not None and effects.write is not None:
            for one in effects.write.entries:
                self._check_log_matching(host, one)
        assert node.commit_index >= host.commit_seen, "the commit index fell"
        if node.commit_index > host.commit_seen:
            self._check_commit(host, hosts)
        if effects is not None and effects.leadership is not None and node.role is Role.LEADER:
            self._check_leader_completeness(host)
        for one in host.applied[len(host.applied) - 20 :] if effects else ():
            assert (one.term, bytes(one.payload)) == self.committed[one.index - 1], (
                "applied differs"
            )

    def check_sent(self, host: Host, message: Message) -> None:
        """A term or a vote is on disk before any message reveals it."""
        if isinstance(message, VoteRequest | VoteResponse) and message.is_trial:
            return
        saved = host.hard_state
        assert message.term <= saved.term, f"term {message.term} is revealed, not saved"
        if isinstance(message, VoteResponse) and message.is_granted:
            assert saved.term > message.term or saved.vote == message.to, "a vote is not saved"

    def _check_one_leader_per_term(self, host: Host) -> None:
        known = self.leaders.setdefault(host.node.term, host.member.node)
        assert known == host.member.node, f"two leaders in term {host.node.term}"

    def _check_log_matching(self, host: Host, one: Entry) -> None:
        """Index and term name an entry and its predecessor; so, by induction, its whole prefix."""
        prev_term = host.node._log.term_at(one.index - 1)
        content = (bytes(one.payload), prev_term)
        known = self._written.setdefault((one.index, one.term), content)
        assert known[0] == content[0], f"two entries at {one.index} in term {one.term}"
        assert prev_term is None or known[1] == prev_term, f"two prefixes of entry {one.index}"

    def _check_commit(self, host: Host, hosts: dict[int, Host]) -> None:
        log = host.node._log
        if host.node.role is Role.LEADER:
            newest = log.term_at(host.node.commit_index)
            assert newest == host.node.term, "a leader counted copies of an older term"
        for index in range(host.commit_seen + 1, host.node.commit_index + 1):
            term = log.term_at(index)
            if index > len(self.committed):
                assert term is not None
                self.committed.append((term, self._written[index, term][0]))
                if host.node.role is Role.LEADER:
                    self._check_majority(host, hosts, index)
            else:
                assert term in (None, self.committed[index - 1][0]), f"commits differ at {index}"
        host.commit_seen = host.node.commit_index

    def _check_majority(self, host: Host, hosts: dict[int, Host], index: int) -> None:
        term = self.committed[index - 1][0]
        membership = host.node.membership
        holders = [
            other
            for other in [*hosts.values(), *self.graves]
            if other.member in membership.voters
            and (
                other.stored.base.index >= index or other.stored.term_at(EntryIndex(index)) == term
            )
        ]
        assert len(holders) >= membership.quorum, f"entry {index} is not on a majority"

    def _check_leader_completeness(self, host: Host) -> None:
        for index in range(host.stored.base.index + 1, len(self.committed) + 1):
            term = host.node._log.term_at(index)
            assert term == self.committed[index - 1][0], f"the leader lacks entry {index}"
