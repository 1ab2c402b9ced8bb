INSERT INTO lockstep_mutex (key) VALUES ({key}) ON CONFLICT DO NOTHING
