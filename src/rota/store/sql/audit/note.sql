-- Write down what somebody did by hand; in the transaction that does it.
insert into rota.audit (who, action, subject, detail)
values (%(who)s::text, %(action)s::text, %(subject)s::text, %(detail)s::json)
