"""The client ledger: named accounts are bounded, and no request is lost in the sum of the others."""

from fairhit.dispatch.accounting.client_ledger import OTHER, ClientLedger


def serve(ledger: ClientLedger, client: str, tokens: int = 1) -> None:
    ledger.begin(client)
    ledger.end(client, "w", extend_len=tokens, cached_len=2 * tokens, output_len=3 * tokens)


def test_clients_beyond_the_bound_are_summed_up_under_one_name() -> None:
    """Clients choose their names: a million names must not become a million metrics."""
    ledger = ClientLedger(named=2)
    for number in range(1000):
        serve(ledger, f"c{number}")
    ledger.begin("late")

    accounts = dict(ledger.accounts())
    assert list(accounts) == ["c0", "c1", OTHER]
    assert (accounts[OTHER].requests, accounts[OTHER].in_flight) == (999, 1)
    assert accounts[OTHER].service.output_len == 998 * 3
    assert ledger.in_flight("late") == 1


def test_a_client_called_other_shares_the_label() -> None:
    ledger = ClientLedger(named=1)
    serve(ledger, OTHER, 5)
    serve(ledger, "late", 7)

    ((name, account),) = ledger.accounts()
    assert (name, account.requests, account.service.extend_len) == (OTHER, 2, 12)
    assert ledger.account(OTHER) == account


def test_totals_do_not_depend_on_which_clients_are_named() -> None:
    few, many = ClientLedger(named=1), ClientLedger(named=100)
    for number in range(50):
        for ledger in (few, many):
            serve(ledger, f"c{number % 7}", number)

    def total(ledger: ClientLedger) -> int:
        return sum(account.service.input_len for _, account in ledger.accounts())

    assert total(few) == total(many)


def test_the_label_of_a_client_is_the_name_its_account_is_exported_under():
    ledger = ClientLedger(named=1)
    for client in ("a", "b"):
        ledger.begin(client)

    assert [ledger.label("a"), ledger.label("b")] == ["a", OTHER]
