-- Is a commit acknowledged before it is on disk?
SELECT current_setting('synchronous_commit') = 'off'
