-- Checks that compare with one value after the other: see schema.sql. Rows stay as they are, so only the definitions are
-- changed (https://sqlite.org/lang_altertable.html, section 7).

pragma writable_schema = on;
update sqlite_schema set sql = replace(sql, 'state in (''sending'', ''completed'', ''failed'')',
  'state = ''sending'' or state = ''completed'' or state = ''failed''') where name = 'outgoing_payment';
update sqlite_schema set sql = replace(sql, 'state in (''prepared'', ''fulfilled'', ''rejected'', ''doubtful'')',
  'state = ''prepared'' or state = ''fulfilled'' or state = ''rejected'' or state = ''doubtful''') where name = 'packet';
update sqlite_schema set sql = replace(sql, 'kind in (''deposit'', ''withdrawal'', ''payment'', ''fee'', ''exchange'')',
  'kind = ''deposit'' or kind = ''withdrawal'' or kind = ''payment'' or kind = ''fee'' or kind = ''exchange''') where name = 'transfer';
update sqlite_schema set sql = replace(sql, 'state in (''pending'', ''delivered'', ''failed'')',
  'state = ''pending'' or state = ''delivered'' or state = ''failed''') where name = 'delivery';
pragma writable_schema = reset;
