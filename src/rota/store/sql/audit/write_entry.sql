-- Write down what somebody did by hand; in the transaction that does it.
insert into rota.audit (operator, action, subject, detail)
values (%(operator)s::text, %(action)s::text, %(subject)s::text, %(detail)s::json)
